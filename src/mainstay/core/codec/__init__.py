"""Values and exceptions as bytes and back: canonical JSON for fingerprints, recorded outcomes."""
