"""The inbox and its operators, driven: raising items, authentication, actions and their effects."""
