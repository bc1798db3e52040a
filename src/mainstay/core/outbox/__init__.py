"""The outbox: messages, which one may be claimed (their order), and what follows an attempt."""
