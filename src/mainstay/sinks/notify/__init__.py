"""Notifications of inbox items: a function, a signed webhook, e-mail."""

from mainstay.integrations.webhooks.signature import is_genuine, signature_of
from mainstay.sinks.notify.mail import NotifyMail
from mainstay.sinks.notify.sink import NotifyHook, NotifySink
from mainstay.sinks.notify.webhook import NotifyWebhook

__all__ = [
    "NotifyHook",
    "NotifyMail",
    "NotifySink",
    "NotifyWebhook",
    "is_genuine",
    "signature_of",
]
