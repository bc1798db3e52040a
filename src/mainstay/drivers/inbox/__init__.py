"""The inbox and its operators: raising items, authentication, actions and their effects."""
