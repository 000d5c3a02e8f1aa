"""Whether a document that the attacker may not read shows in time: denied must look like a miss.

No answer may come sooner or later because the text is somebody's document. The audit publishes to
an organisation of its own in which nobody is, so it needs no names of others.
"""

from __future__ import annotations

from dataclasses import dataclass

from scopekv.audit.results import Severity
from scopekv.audit.timing.asking import Asker, Party
from scopekv.audit.timing.experiments import Arm, Sample, asked_for
from scopekv.audit.timing.withdrawal import Publisher


@dataclass(frozen=True, slots=True, repr=False)
class Denied:
    """The attacker asks for a document of others (HIT), or for what nobody has (MISS).

    In both a document is published before. CONTROL: the attacker's own text, sent before.
    """

    asker: Asker
    attacker: Party
    publisher: Publisher
    name: str = "denied"
    title: str = "A document that is not the caller's is answered as one that nobody has"
    main: bool = False
    usage_decides: bool = True
    silent: str = ""
    severity: Severity = Severity.MEDIUM

    async def sample(self, arm: Arm) -> Sample:
        letters = self.asker.letters
        text = letters.fresh() + "\n"
        if arm is Arm.CONTROL:
            await self.asker.ask(self.attacker, text + letters.fresh())
        else:
            await self.publisher.publish_to_nobody(text)
        return await asked_for(text, arm, self.asker, self.attacker)
