"""Results as audits hand them over, of every verdict, and with names made to break a page."""

from __future__ import annotations

from scopekv.adapters.ed25519 import TicketSigner
from scopekv.audit.report import Report
from scopekv.audit.results import AuditResult, Check, NotTested, Plain, Severity, Verdict

HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=y>&amp;{{ 7*7 }}\x1b[31m\x00"
API_KEY = "sk-scopekv-" + "A" * 43
FOREIGN_KEY = 'plain"secret&key/of=another'
SIGNER = TicketSigner(b"\x07" * 32)
VERSIONS = {"scopekv": "0.1.0", "vllm": "0.32.0", "python": "3.11.9"}


def check(name: str, verdict: Verdict, summary: str = "seen", **fields: object) -> Check:
    return Check(name=name, title=f"claim of {name}", verdict=verdict, summary=summary, **fields)  # type: ignore[arg-type]


def isolation() -> AuditResult:
    tiers, kinds = ("engine", "host", "directory"), ("user", "org", "session", "document")
    return AuditResult(
        audit="isolation",
        target="http://127.0.0.1:8080",
        seed=11,
        started_at=1_800_000_000,
        seconds=312.4,
        checks=(
            *(
                check(
                    f"isolation.{tier}.{kind}",
                    Verdict.HELD,
                    "24 forbidden reuses, none hit",
                    tried=24,
                    control="24 of 24 allowed reuses hit",
                    evidence={"cached_tokens": 0, "hit_ms": 21.4, "miss_ms": 180.25},
                )
                for tier in tiers
                for kind in kinds
            ),
            check("isolation.adapter", Verdict.NOT_TESTED, "no adapter is loaded"),
        ),
        not_tested=(NotTested("LoRA adapters", "none is loaded"),),
        figures={
            "cells_forbidden": 1152,
            "forbidden_hits": 0,
            "cells_allowed": 96,
            "allowed_misses": 0,
            "by_tier": {tier: {"cells_forbidden": 96, "forbidden_hits": 0} for tier in tiers},
        },
        settings={"prompt_tokens": 640, "repeats": 2},
        versions=VERSIONS,
    )


def timing() -> AuditResult:
    def test(name: str, p: float, auc: float, half: float) -> Plain:
        return {
            "name": name,
            "n": 1000,
            "p": p,
            "p_holm": min(1.0, 3 * p),
            "auc": auc,
            "auc_lower95": auc - half,
            "auc_upper95": auc + half,
            "mde_auc": 0.54,
            "looks": [{"n": 50, "p": 0.3}],
            "control_p": 3.2e-31,
        }

    return AuditResult(
        audit="timing",
        target="http://127.0.0.1:8080",
        seed=11,
        started_at=1_800_000_400,
        seconds=521.0,
        checks=(
            check(
                "timing.same_key",
                Verdict.BROKEN,
                "the attacker told 93 of 100 prompts from new ones",
                severity=Severity.MEDIUM,
                tried=2000,
                control="p = 3.2e-31",
                evidence={"auc": 0.93, "ks": {"statistic": 0.71, "n": 1000}},
            ),
            check(
                "timing.first_touch",
                Verdict.BLIND,
                "the control was not detected in 250 samples",
                tried=500,
                control="p = 0.41, wanted below 1e-8",
            ),
        ),
        figures={
            "control_p": 3.2e-31,
            "tests": [
                test("across users", 0.44, 0.503, 0.018),
                test("across organisations", 0.81, 0.496, 0.018),
                test("same organisation", 2e-40, 0.93, 0.011),
            ],
        },
        versions=VERSIONS | {"scipy": "1.16.0"},
    )


def store(*, complete: bool = True) -> AuditResult:
    return AuditResult(
        audit="store",
        target=f"directory {HOSTILE}",
        seed=11,
        started_at=1_800_001_000,
        seconds=4.0,
        checks=(
            check(
                "store.names",
                Verdict.HELD,
                f"no name confirms a guess {HOSTILE} {API_KEY} {FOREIGN_KEY}",
                tried=200,
                control=HOSTILE,
                evidence={HOSTILE: [HOSTILE, {"deep": {"key": API_KEY}}]},
            ),
        ),
        figures={"objects": 412, "readable": 0, HOSTILE: {HOSTILE: {HOSTILE: HOSTILE}}},
        complete=complete,
    )


def report(*results: AuditResult) -> Report:
    return Report(
        results=results or (isolation(), timing(), store()),
        command=f"scopekv audit run --out report --victim-key {FOREIGN_KEY} --seed 11",
        started_at=1_800_000_000,
        ended_at=1_800_001_010,
        repeat={"isolation": "scopekv audit isolation --seed 11"},
        not_tested=(NotTested("Two instances", "one is running"),),
        secrets=(FOREIGN_KEY,),
    )
