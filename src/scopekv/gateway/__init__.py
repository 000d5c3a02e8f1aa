"""HTTP in and out: authenticate, render, decide, sign, forward."""
