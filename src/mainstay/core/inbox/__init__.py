"""The inbox: items that wait for a person, the actions that are legal, and who may act."""
