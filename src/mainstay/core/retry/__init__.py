"""One failing call: the policy, what a failure is, how long to wait, when to give up."""
