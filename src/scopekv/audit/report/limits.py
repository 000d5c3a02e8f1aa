"""What no audit of ours tests, and what the words of a report mean."""

from __future__ import annotations

from scopekv.audit.results import NotTested, Severity, Verdict

NEVER_TESTED = (
    NotTested(
        "A stolen engine process or its memory",
        "an engine must see the prompts that pass through it, and holds their blocks in plain form",
    ),
    NotTested(
        "A stolen gateway, its key files together with its registry",
        "the gateway signs permissions and unwraps keys; who has it needs no attack on the cache",
    ),
    NotTested(
        "Residue in GPU memory, host memory, swap and core dumps",
        "freed memory is reused, not erased; no audit reads another process's memory",
    ),
    NotTested(
        "Side channels below the API: processor caches, memory bus, GPU kernels, power, radiation",
        "they take code or instruments on the same machine; audits attack through the network only",
    ),
    NotTested(
        "Denial of service, by an operator or by load",
        "audits ask who may learn what, not whether the service stays up",
    ),
    NotTested(
        "What the model itself gives away in its answers",
        "an answer is made from its own prompt; training data and prompt injection are not cache",
    ),
    NotTested(
        "The network between client, gateway, engines and stores",
        "TLS, firewalls and credentials of the network belong to whoever operates them",
    ),
    NotTested(
        "Size and timing of other tenants' traffic as seen on the network or in a queue",
        "load shows in waiting times with or without a cache",
    ),
    NotTested(
        "Backups, snapshots and object versions kept by a store",
        "deletion reaches what the store itself lists",
    ),
    NotTested(
        "Attackers with more time, samples or identities than the sample sizes in this report",
        "each negative result holds down to the smallest effect it could have seen",
    ),
)

HEADLINES = {
    Verdict.HELD: ("Isolation held", "Every attack failed, and every control beside it succeeded."),
    Verdict.BROKEN: ("Isolation is broken", "At least one attack succeeded. See the findings."),
    Verdict.BLIND: (
        "Isolation is not proved",
        "No attack succeeded, but a control failed or an audit was cut short: see which below.",
    ),
}

MEANINGS = {
    Verdict.HELD: "The attack failed, and the control that had to succeed in the same run did.",
    Verdict.BROKEN: "The attack succeeded.",
    Verdict.BLIND: "The control failed. The attack may have failed for that reason alone, so "
    "this check says nothing about isolation.",
    Verdict.NOT_TESTED: "Not tried in this run; the reason stands beside it.",
}

NEXT = {
    Verdict.BROKEN: "Tell the operator, and nobody else until it is mended: this page says how it "
    "was done. Then repeat the audit with the command at the end of its section.",
    Verdict.BLIND: "This is no finding against the deployment, and no proof for it. See under "
    "Control what had to succeed and did not. Was the audit cut short? Give it more time. Did "
    "allowed reuse miss? Then caching may be off, a tier too small for what the audit puts into "
    "it, or other work pushed blocks out. Mend that, then repeat the audit.",
}

MARKS = {
    Verdict.HELD: "✓",
    Verdict.BROKEN: "✗",
    Verdict.BLIND: "?",
    Verdict.NOT_TESTED: "–",
}

NAMES = {
    Verdict.HELD: "held",
    Verdict.BROKEN: "broken",
    Verdict.BLIND: "blind",
    Verdict.NOT_TESTED: "not tested",
}

WEIGHTS = {
    Severity.HIGH: "another caller's content, or stored bytes that open",
    Severity.MEDIUM: "that something exists, or how much of it",
    Severity.LOW: "something an operator may want to know",
}

PURPOSES = {
    "isolation": "Can a caller reuse what another caller's requests left in a cache? Pairs of "
    "callers, kinds of scope and tiers are tried both ways: reuse that is allowed must hit, "
    "reuse that is forbidden must not.",
    "timing": "Can a caller tell from response times what another caller sent? An attacker asks "
    "for near copies of a victim's prompts and for prompts that nobody sent, and a test decides "
    "whether the times differ.",
    "store": "What does a thief of the storage tiers learn? Files, objects, events, logs and "
    "metrics are read without keys, then altered, swapped and replayed to see whether they are "
    "refused.",
}

CUT_SHORT = (
    "Give it more time: a larger --budget-minutes, --quick for fewer and smaller tests, or --only "
    "for one audit at a time."
)

WORDS = {
    "Cell": "In the isolation audit: one caller who asks for one owner's text of one kind, through "
    "one endpoint, with the only copy in one tier. A forbidden cell must not hit; an allowed one "
    "must, and is the control. Unproved: a forbidden cell that missed where its control did too.",
    "Organisation, global, document": "In the timing audit, who attacks: another user of the "
    "victim's organisation; another organisation; another organisation, with private text after "
    "a public document that both use. Checks explain the other names.",
    "Control": "Something like the attack that must succeed, in the same run. A failed attack "
    "counts only beside a control that succeeded.",
    "n": "Samples; in the timing audit per arm: how often the attacker asked for each of the two "
    "kinds of prompt.",
    "p": "How often chance alone would give times as different as these. Small means a leak; for "
    "a control, small means that the method sees what it must. One-sided two-sample "
    "Kolmogorov-Smirnov test (Gu et al., arXiv 2502.07776).",
    "Holm": "Many tests give some small p by chance. Holm's method raises each p so that all of "
    "them together err at the stated level only.",
    "AUC": "The chance that a prompt of the victim's is answered sooner than a new one. 0.5: the "
    "attacker guesses (the dotted line); 1: it always knows. In 95 of 100 runs the interval holds "
    "the true value.",
    "Equivalence": "A large p alone proves nothing. Equivalence is shown where even the upper end "
    "of the AUC's interval stays below the stated bound.",
    "Minimum detectable effect": "The smallest effect that this many samples would have found "
    "four times out of five.",
}
