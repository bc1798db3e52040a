"""`mainstay exec`: one command under a policy, its exit codes and its report."""
