"""Values and exceptions as bytes: keys and fingerprints, recorded outcomes, and the way back."""
