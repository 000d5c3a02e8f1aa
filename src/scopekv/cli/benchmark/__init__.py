"""The parts of `scopekv bench`: texts, requests, engines, modes, table and chart."""
