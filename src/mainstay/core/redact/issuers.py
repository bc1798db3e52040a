"""Tokens by their issuers' prefixes, alphabets and lengths; card numbers by Luhn's check."""

from __future__ import annotations

import re
from functools import cache

from mainstay.core.redact.names import OneOf
from mainstay.core.redact.plain import is_dense

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_HEX = r"[a-f0-9]{32,}+"
_WORDS = r"\w{16,}+"
_RANDOM = r"(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{20,}+"
_DASHED = r"[\w=.-]{16,}+"
_MIXED = r"(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{16,}+(?![\w-])"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"

ISSUERS: tuple[tuple[str, str], ...] = (
    (  # AWS
        "AKIA ASIA ABIA ACCA AGPA AIDA AIPA ANPA ANVA APKA AROA",
        r"[A-Z0-9]{16}(?![A-Za-z0-9])",
    ),
    ("ABSK bedrock-api-key-", r"[\w+/=-]{32,}+"),  # AWS Bedrock
    ("AIza ya29. GOCSPX-", r"[\w.-]{20,}+"),  # Google
    ("1//0", r"[\w-]{20,}+"),  # Google, to refresh
    ("ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", _WORDS),
    ("glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- glsoat- gloas-", _DASHED),  # GitLab
    ("glffct- glwt- GR1348941", _DASHED),
    ("glsa_ glc_", r"[\w.=+/-]{16,}+"),  # Grafana
    (
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp-",
        r"[\w.%-]{10,}+",
    ),  # Slack
    ("sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ whsec_", r"\w{8,}+"),  # Stripe
    ("sk-", r"(?=[A-Za-z_-]{0,60}[0-9])[\w-]{16,}+"),  # OpenAI, Anthropic, OpenRouter
    (
        "gsk_ xai- pplx- r8_ npm_ hf_ api_org_ tgp_v1_ fw_ csk-",
        r"[A-Za-z0-9]{24,}+",
    ),
    ("dckr_pat_ dckr_oat_", r"[\w-]{24,}+"),  # Docker
    ("pypi-Ag", r"[\w-]{16,}+"),
    ("hvs. hvb. hvr.", r"[\w-]{16,}+"),  # Vault
    ("dop_v1_ doo_v1_ dor_v1_ shpat_ shpss_ shpca_ shppa_ shptka_ shpua_", r"[a-fA-F0-9]{32,}+"),
    ("dapi dose dkea", _HEX),  # Databricks
    ("SG.", r"[\w-]{16,64}\.[\w-]{16,}+"),  # SendGrid
    ("xkeysib- xsmtpsib-", r"[a-f0-9]{32,}-\w{8,}+"),  # Brevo
    ("key-", r"[a-f0-9]{32}(?![\w-])"),  # Mailgun
    (
        "lin_api_ lin_oauth_ sbp_ sb_secret_ ATATT3 ATCTT3 ATBB NRAK- NRII- NRAL- PMAK- PMAT-",
        _DASHED,
    ),
    ("pscale_tkn_ pscale_pw_ pscale_oauth_ npg_ napi_", r"[\w=.-]{10,}+"),
    ("dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"[\w.-]{20,}+"),  # Doppler
    ("dt0c01. dt0s01.", r"[A-Za-z0-9]{8,}\.[A-Za-z0-9]{16,}+"),  # Dynatrace
    ("sntrys_ sntryu_ sntrya_", r"[\w+/=-]{20,}+"),  # Sentry
    ("EAAA EAAC EAAB EAAG EAAM EAAE EAAJ", r"[\w-]{40,}+"),  # Square, Facebook
    ("sq0csp- sq0atp- sq0idp-", r"[\w-]{20,}+"),
    ("HRKU-", rf"(?:{_UUID}|[\w-]{{20,}}+)"),  # Heroku
    ("figd_ figdr_ figo_", r"[\w-]{20,}+"),
    ("cio", r"(?=[A-Za-z]{0,32}[0-9])[A-Za-z0-9]{32}(?!\w)"),  # crates.io
    ("bkua_ bkaj_ bkct_", r"[a-z0-9]{40}"),  # Buildkite
    ("CCIPAT_ CCIPRJ_", r"\w{16,}+"),  # CircleCI
    ("CFPAT-", r"[\w-]{30,}+"),  # Contentful
    (
        "duffel_live_ duffel_test_ ntn_ secret_ pnu_ nfp_ nfc_ nfo_ nfb_ nfu_ vcp_ vck_ vercel_",
        r"(?=[\w-]{0,60}[0-9])[\w-]{24,}+",
    ),
    ("FLWSECK- FLWSECK_TEST-", r"\w{10,}(?:-X)?"),  # Flutterwave
    ("tskey-", r"[\w-]{16,}+"),  # Tailscale
    ("fm1a_ fm1r_ fm2_ fo1_", r"[\w+/=,-]{30,}+"),  # Fly.io
    ("sk.eyJ pk.eyJ tk.eyJ", r"[\w.-]{20,}+"),  # Mapbox
    ("xprv yprv zprv tprv", r"[A-HJ-NP-Za-km-z0-9IlO]{80,}+"),  # Bitcoin wallets
    ("nsec1", r"[a-z0-9]{50,}+"),  # Nostr
    ("AGE-SECRET-KEY-1", r"[A-Z0-9]{30,}+"),
    ("WPL_AP1.", r"[\w.=]{16,}+"),  # LinkedIn
    ("AKCp cmVmd", r"[A-Za-z0-9]{50,}+"),  # Artifactory
    ("EZAK EZTK", r"[A-Za-z0-9]{50,}+"),  # EasyPost
    ("LTAI", r"[A-Za-z0-9]{16,24}(?!\w)"),  # Alibaba
    ("AKID", r"[A-Za-z0-9]{32}(?!\w)"),  # Tencent
    ("ops_eyJ", r"[\w+/=-]{60,}+"),  # 1Password
    ("A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{5,11}-){3,4}[A-Z0-9]{5}"),
    ("p8e-", r"[\w-]{32}"),  # Adobe
    (
        "pul- ico- rdme_ rubygems_ nvapi- lsv2_pt_ lsv2_sk_ phc_ phx_ re_ sgp_ oy2",
        r"(?=[\w-]{0,80}[0-9])[\w-]{28,}+",
    ),
    (
        "dnkey- tfp_ bbdc- BBDC- pco- ZAPTOK- whk_ cal_live_ ctx7sk- mdb_sa_sk_ jfrog-",
        r"(?=[\w-]{0,80}[0-9])[\w-]{24,}+",
    ),
    ("shippo_live_ shippo_test_ live_ test_", r"[a-fA-F0-9]{30,}+"),
    ("access-sandbox- access-development- access-production-", _UUID),  # Plaid
    ("amzn.mws.", _UUID),
    ("sha256~", r"[\w-]{43}"),  # OpenShift
    ("v1.0-", r"[a-f0-9]{24}-[a-f0-9]{100,}+"),  # Cloudflare
    ("sl.", r"[\w=-]{100,}+"),  # Dropbox
    ("PRIVATE- API-", r"[A-Z0-9]{24,}+(?!\w)"),  # Octopus
    ("squ_ sqp_ sqa_", _HEX),  # SonarQube
    ("pat-na1- pat-na2- pat-na3- pat-eu1- pat-ap1-", _UUID),  # HubSpot
    ("ovsxat_ sk-lf- sdk- mob-", _UUID),  # Open VSX, Langfuse, LaunchDarkly
    ("CLOJARS_", r"[a-z0-9]{60}"),
    ("packagist_uut_ packagist_ack_ packagist_out_", _HEX),
    ("fc-", r"[a-f0-9]{32}(?!\w)"),  # Firecrawl
    ("signkey-prod- signkey-test- signkey-branch-", _HEX),  # Inngest
    ("oauth:", r"[a-z0-9]{30}(?!\w)"),  # Twitch
    ("akab- akaa-", r"[a-z0-9]{16}-[a-z0-9]{16}"),  # Akamai
    ("secret-test- secret-live-", r"[\w=-]{32,}+"),  # Stytch
    ("perm: perm-", r"[\w=]{8,}\.[\w=]{4,}\.[\w=]{16,}+"),  # JetBrains
    ("IGQV IGAA", r"[\w-]{80,}+"),  # Instagram
    ("vk1.a.", r"[\w-]{60,}+"),
    ("y0_ AQVN", r"(?=[\w-]{0,80}[0-9])[\w-]{30,}+"),  # Yandex
    ("s-s4t2ud- s-s4t2af-", _HEX),
    (
        "LS0tLS1CRUdJTiBQUklWQVRF LS0tLS1CRUdJTiBSU0EgUFJJ LS0tLS1CRUdJTiBFQyBQUklW",
        r"[\w+/=]{16,}+",
    ),
    (
        "LS0tLS1CRUdJTiBPUEVOU1NI LS0tLS1CRUdJTiBFTkNSWVBU LS0tLS1CRUdJTiBEU0EgUFJJ",
        r"[\w+/=]{16,}+",
    ),
    ("tvly- tvly-dev- tvly-prod- jina_ lip_ dbtc_ dbtu_", _RANDOM),
    ("polar_pat_ polar_oat_ hcaik_ hcxik_ hcamk_ retool_01 n8n_api_", _RANDOM),
    ("apify_api_ tr_prod_ tr_dev_ os_v2_app_ os_v2_org_ aivenv1_ essu_", _RANDOM),
    ("rzp_live_ rzp_test_", r"[A-Za-z0-9]{14,}+"),  # Razorpay
    ("aio_", r"(?=[A-Za-z]{0,28}[0-9])[A-Za-z0-9]{28}(?!\w)"),  # Adafruit
    ("wandb_v1_ rnd_ esecret_ testsk_ slk_", _RANDOM),
    ("cfut_ cfat_ cfk_ e2b_ KGAT_", _RANDOM),
    ("fio-u- tk-us-", r"[\w=-]{40,}+"),  # Frame.io, Scalingo
    ("key_live_ key_test_ secret_live_ secret_test_ token_live_ token_test_ api_live_", _RANDOM),
    ("api_test_", _RANDOM),
    (
        "pcsk_ CCDB1_ syt_",
        r"(?:[A-Za-z0-9]{2,40}_[\w-]{20,}+|[A-Za-z0-9]{40,}+)",
    ),  # Pinecone, CockroachDB, Matrix
    ("NRJS- NRIQ- NRSP- NRAA- NRBR-", r"[\w-]{16,}+"),  # New Relic
    ("amzn1.oa2-cs.v1.", _HEX),
    ("ATTA", r"[a-f0-9]{60,76}(?!\w)"),  # Trello
    ("gta_ ddp_ ddw_", _RANDOM),  # Gitea, Deno
    ("APP_USR- TEST-", r"[0-9]{12,20}-[0-9]{4,8}-[a-f0-9]{32}"),  # Mercado Pago
    ("v^1.1#", r"[\w#^+/=]{40,}+"),  # eBay
    ("A3T", r"[A-Z0-9]{17}(?![A-Za-z0-9])"),  # AWS
    ("AQ.A", r"[\w-]{40,}+"),  # Google
    (  # Authress
        "sc_ ext_ scauth_ authress_",
        r"[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][a-z0-9-]{10,32}\.[\w+/=-]{30,}+",
    ),
    ("4b1d", r"(?=[a-z0-9]{0,37}[A-Z])[A-Za-z0-9]{38}(?!\w)"),  # ClickHouse
    ("sm_aat_ sm_pat_ sm_sat_", r"[A-Za-z0-9]{16}"),  # SettleMint
    ("eyJrIjoi ZXlK", r"[\w+/-]{60,}={0,3}"),  # Grafana; a JWT in base64
    ("odt_ ion_ shltm_ jsrp_ jsrd_ ddapp_ llx- pa- cflt atkn_ prtapi_", _RANDOM),
    ("b_ hawk. tkn.v1_", r"(?=[\w-]{0,40}[0-9])[\w.=-]{40,}+"),
    ("VF.DM. VF.WS.", r"[a-f0-9]{24}\.[A-Za-z0-9]{16,}+"),  # Voiceflow
    ("BBFF- BBUS-", r"[A-Za-z0-9]{30}(?!\w)"),  # Ubidots
    ("scp-live- scp-test-", _HEX),  # Scrapfly
    ("xwfp-", r"[\w-]{16,}+"),  # Slack
    ("mfa.", r"[\w-]{80,}+"),  # Discord
    ("SWMTKN-1- SWMKEY-1-", r"[\w+/-]{24,}+"),  # Docker
    ("token-", r"[a-z0-9]{5}:[a-z0-9]{54}(?!\w)"),  # Rancher
    ("A21AA", r"[\w-]{60,}+"),  # PayPal
    ("AQE AQV AQX AQU AQT", r"[\w+/=.^{}-]{100,}+"),  # Adyen, LinkedIn
    ("dG9rO", r"[\w+/=-]{40,}+"),  # Intercom
    ("t1.9eu", r"[\w=-]{40,}\.[\w-]{40,}+"),
    ("YCAJE", r"[\w-]{20}(?![\w-])"),  # Yandex
    ("bce-v3/ALTAK-", r"[A-Za-z0-9]{16,}/[a-f0-9]{32,}+"),  # Baidu
    ("st.", r"[a-f0-9]{24}\.[a-f0-9]{32}\.[a-f0-9]{32}"),  # Infisical
    ("pdl_live_apikey_ pdl_sdbx_apikey_", r"\w{26,}+"),  # Paddle
    ("na1. eu1.", r"[A-Za-z0-9+/]{80,}={0,2}"),
    ("k_", r"(?=[a-z]{0,36}[0-9])[a-z0-9]{36,}(?!\w)"),  # Mailsac
)
"""Prefixes and what follows them."""

INNER: tuple[tuple[str, str], ...] = (
    (".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,}+"),  # Terraform
    ("*", r"\*[0-9A-F]{40}(?![0-9A-Fa-f])"),  # a password of MySQL
    ("s.", r"s\.(?=[A-Za-z]{0,24}[0-9])(?=[a-z0-9]{0,24}[A-Z])[A-Za-z0-9]{24}(?![\w.])"),  # Vault
    ("v1.", r"v1\.[a-f0-9]{40}(?!\w)"),  # GitHub, of old apps
    ("AC", r"AC(?=[a-f]{0,31}[0-9])[a-f0-9]{32}(?!\w)"),  # Twilio
    ("SK", r"SK(?=[a-fA-F]{0,31}[0-9])[a-fA-F0-9]{32}(?!\w)"),
    ("0.", rf"0\.{_UUID}\.[A-Za-z0-9]{{30}}:[\w+/]{{22}}=="),  # Bitwarden
    ("00", r"00(?=[a-z0-9_-]{0,30}[A-Z])(?=[A-Z0-9_-]{0,30}[a-z])[\w-]{40}(?![\w-])"),  # Okta
    ("-us", r"[a-f0-9]{32}-us[0-9]{1,2}(?!\w)"),  # Mailchimp
    (":fx", r"[a-f0-9]{8}(?:-[a-f0-9]{4}){3}-[a-f0-9]{12}:fx(?!\w)"),  # DeepL
    (":AA", r"(?:bot)?[0-9]{8,10}:AA[\w-]{33}(?![\w-])"),  # Telegram
    ("T-", r"(?:S|TG|PG|P)T-[0-9]{1,9}-[A-Za-z0-9]{16,}[\w.-]*+"),  # CAS
    ("Q~", r"[\w.~]{3}[0-9]Q~[\w.~-]{31,34}"),  # Microsoft Entra
    ("pat", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),  # Airtable
    ("at.", r"[ps]at\.[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),  # Harness
    ("NRAL", r"[a-f0-9]{32,40}(?:FFFF)?NRAL(?!\w)"),  # New Relic
    ("_mmk", r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),  # MaxMind
    ("$production$", r"access_token\$production\$[0-9a-z]{16}\$[0-9a-f]{32}"),  # Braintree
    (".", r"[MNO][A-Za-z\d_-]{23,27}\.[\w-]{6}\.[\w-]{27,40}(?![\w-])"),  # Discord
    ("APA91b", r"[\w-]{11}:APA91b[\w-]{80,}+"),  # Firebase
    ("1000.", r"1000\.[a-f0-9]{32}\.[a-f0-9]{32}"),  # Zoho
    ("Atz", r"Atz[ar]\|[\w+/=-]{40,}+"),  # Amazon
    ("sec-c-", r"sec-c-[\w+/=-]{32,}+"),  # PubNub
    ("pk_", r"pk_(?:[0-9]{6,12}_[A-Z0-9]{32}|[0-9a-f]{34})(?!\w)"),  # ClickUp, Klaviyo
    ("1/", r"[12]/[0-9]{12,20}(?:/[0-9]{12,20})?:[a-f0-9]{32}(?!\w)"),  # Asana
    ("JQQJ9", r"[A-Za-z0-9]{52}JQQJ9[A-Za-z0-9]{20,}+"),  # Azure DevOps and others
    ("==", r"[A-Za-z0-9+/]{76}(?:APIM|ACDb|\+(?:ABa|AMC|ASt))[A-Za-z0-9+/]{5}[AQgw]=="),  # Azure
    ("AzFu", r"[\w-]{44}AzFu[\w-]{5}[AQgw]=="),
    ("krb5", r"\$krb5\w{2,10}\$[\w.$*/@:-]{20,}+"),  # Kerberos
    ("!", r"00D[A-Za-z0-9]{12,15}![\w.]{60,}+"),  # Salesforce
    ("|", r"[0-9]{15,16}\|[\w-]{27,40}(?![\w-])"),  # Facebook
)
"""Parts of tokens that stand elsewhere, and the whole."""

ANY_ISSUER = tuple(
    """
    sk_ ak_ rk_ tk_ tok_ pat_ sat_ aat_ tkn_ key_ apikey_ api_ secret_ token_ live_ test_ prod_
    sandbox_ sbox_ oauth_ access_ refresh_ auth_ svc_ priv_ sk- ak- as- pat- key- apikey- secret-
    token- live-
    """.split()
)
"""Words in prefixes of any issuer; what is behind them is a token if it looks random."""
_PUBLIC = ("pk_", "pub_", "pk-", "pub-")
"""What stands before such a word if the key is a public one."""

ISSUED = (*(prefix for prefixes, _ in ISSUERS for prefix in prefixes.split()), *ANY_ISSUER)


@cache
def _token() -> re.Pattern[str]:
    """Any of those tokens; compiled once a text has such a prefix, not at import."""
    rows = [f"(?:{'|'.join(map(re.escape, prefixes.split()))}){rest}" for prefixes, rest in ISSUERS]
    rows.append(f"(?:{'|'.join(map(re.escape, ANY_ISSUER))})(?:[a-z]{{2,12}}_)?(?P<any>{_MIXED})")
    return re.compile(f"(?<![A-Za-z0-9])(?:{'|'.join(rows)})", re.ASCII)


_PREFIX = OneOf(ISSUED, begins=True)
LONG = re.compile(r"[\w.%+/=~-]{15}", re.ASCII)
"""The shortest of those tokens; most texts have no word as long."""
_PARTS = tuple((part, re.compile(whole, re.ASCII)) for part, whole in INNER)


def issued(text: str) -> Iterator[tuple[int, int]]:
    """Where a token with the mark of its issuer stands."""
    if LONG.search(text) is None:
        return
    if _PREFIX.is_in(text):
        for found in _token().finditer(text):
            if found["any"] is None or _is_token(text, found):
                yield found.start(), _with_secret(text, found.end())
    for part, whole in _PARTS:
        if part in text:
            for found in whole.finditer(text):
                before = text[max(0, found.start() - 1) : found.start()]
                if not (before.isascii() and before.isalnum()):
                    yield found.start(), _with_secret(text, found.end())


_KEY_OF_HEX = re.compile(r"[0-9a-f]{32,}")


def _is_token(text: str, found: re.Match[str]) -> bool:
    """Whether a word of any issuer has a token behind it, and not the public half of one."""
    if text.endswith(_PUBLIC, 0, found.start()):
        return False
    return is_dense(found["any"]) or _KEY_OF_HEX.fullmatch(found["any"]) is not None


_SECRET = re.compile(
    r":[\w+/=-]{16,}+|(?:[ ]?[/,;|][ ]?|[ \t]{1,4}|[\"'],?[ ]?[\"'])(?=[a-z0-9+/]{0,39}[A-Z])"
    r"[A-Za-z0-9+/]{40}(?![\w+/=])",
    re.ASCII,
)


def _with_secret(text: str, end: int) -> int:
    """The end of the secret behind the id of a key: `AKIA…:…`."""
    secret = _SECRET.match(text, end)
    return end if secret is None else secret.end()


# --- card numbers ---------------------------------------------------------------------------------

DIGITS = re.compile(r"[2-6][0-9]{3}[ .-]?[0-9]{4}")
_CARD = re.compile(
    r"(?<![\w.+-])(?:(?:2[2-7]|[3-6][0-9])[0-9]{11,17}"
    r"|(?:2[2-7]|[3-6][0-9])[0-9]{2}([ .-])[0-9]{4}\1[0-9]{4}\1(?:[0-9]{4}\1[0-9]{1,3}|[0-9]{1,7})"
    r"|3[0-9]{3}([ .-])[0-9]{6}\2[0-9]{4,5})(?!\w|[.-][0-9])"
)
_OTHER = re.compile(
    r"""(?i)(?:\b|_)(?:order|tracking|track|parcel|invoice|shipment|shipping|consignment|ticket|booking
    |reservation|case|reference|ref|receipt|serial|imei|isbn|ean|gtin|upc|sku|batch|lot|thread|offset
    |row|bytes|timestamp|epoch|nanos|matrix|iban|phone|tel|fax|delivery|waybill|awb|contract|policy
    |customer|member|(?<!primary[ _])account|request|trace|span|message|event|job|run|build|measured
    |device
    |bigint|took|rechnung|bestell|auftrag|kunden|sendung|paket|beleg|vertrag|vorgang|buchung
    |facture|commande|colis|factura|pedido|fattura|ordine|besany|zamówieni|faktur)
    [a-zéà_]{0,12}(?:[ ._-]?(?:id|no|nr|num|number|code|key|numbers|ids|nº|n°|№))?
    [.:#="' (\[]{0,5}\Z""",
    re.VERBOSE,
)
_LAST = re.compile(r"(?<= [0-9]{4} [0-9]{4} [0-9]{4}) [0-9]{1,3}\Z")
_LEAD = 48


def cards(text: str) -> Iterator[tuple[int, int]]:
    """Where the number of a card stands."""
    found = None if DIGITS.search(text) is None else _CARD.search(text)
    while found is not None:
        start, end = found.span()
        if _OTHER.search(text[max(0, start - _LEAD) : start]) is None:
            number = _number(found[0])
            end = start + (len(number) or 1)  # without one, it may begin in a later group
            if number:
                yield start, end
        found = _CARD.search(text, end)


def _number(digits: str) -> str:
    """The number of a card that begins here; a last short group may be a date: `4… 12/27`."""
    candidates = (digits, _LAST.sub("", digits))
    return next((each for each in candidates if _satisfies_luhn(each)), "")


def _satisfies_luhn(number: str) -> bool:
    """The check of ISO/IEC 7812-1, which nine in ten other numbers fail."""
    digits = [int(char) for char in reversed(number) if char.isdigit()]
    total = sum(digits[::2]) + sum(2 * digit - 9 * (digit > 4) for digit in digits[1::2])
    return total % 10 == 0
