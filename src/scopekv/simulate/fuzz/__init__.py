"""Deterministic fault simulation: the real parts in a world where one seed decides everything.

    seed ──▶ operations ──▶ world (virtual time, no threads, no sockets) ──▶ laws
                              engines, tiers, gateways, registry, event bus, all of them failing

Real here: block identity, tickets, fences, policy, routing, the location index and its followers,
sealed tiers whole, keyring, key broker, scope keys, receipts. Simulated: time, bytes at rest, the
network, the registry's database, the model. What may be read is judged by an oracle that shares no
code with what it judges. See docs/fuzzing.md.
"""
