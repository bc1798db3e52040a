"""The tools of this repository; nothing here is shipped."""
