"""Notifications of inbox items: a function, a signed webhook, e-mail."""

from mainstay.sinks.notify.mail import NotifyMail
from mainstay.sinks.notify.sink import NotifyHook, NotifySink
from mainstay.sinks.notify.webhook import NotifyWebhook, is_genuine, signature_of

__all__ = [
    "NotifyHook",
    "NotifyMail",
    "NotifySink",
    "NotifyWebhook",
    "is_genuine",
    "signature_of",
]
