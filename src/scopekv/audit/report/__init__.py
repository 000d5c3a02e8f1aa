"""The signed report of audits: for people, for programs, for CI, and proof that nobody changed it.

report.html    for a reviewer without the source     junit.xml      for CI
report.json    the same for programs                 report.sarif   for code scanning (2.1.0)
manifest.json  every file's hash, who signed         manifest.sig   Ed25519 over manifest.json
"""

from scopekv.audit.report.contents import Report
from scopekv.audit.report.keys import (
    fingerprint,
    public_pem,
    read_fingerprint,
    read_public_key,
    report_signer,
)
from scopekv.audit.report.verifying import Verification, verify_report
from scopekv.audit.report.writing import check_folder, write_report

__all__ = [
    "Report",
    "Verification",
    "check_folder",
    "fingerprint",
    "public_pem",
    "read_fingerprint",
    "read_public_key",
    "report_signer",
    "verify_report",
    "write_report",
]
