"""`mainstay status`: circuits, inbox, keys and spill in one view."""
