"""Secrets of command lines: the options of common programs, word by word, before quoting."""

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstay import Redactor
from mainstay.core.redact.command_line import redacted_line, redacted_words
from mainstay.core.redact.programs import PROGRAMS

SECRET = "S3cr3t-Xy"

PLANTED = """
mssql-cli -S db -U sa -P SECRET
isql shop ann SECRET
cypher-shell -u neo4j -p SECRET
neo4j-admin dbms set-initial-password SECRET
evil-winrm -i host -u ann -p SECRET
nikto -id ann:SECRET -h host
ncat --proxy-auth ann:SECRET host
radtest ann SECRET localhost 0 other
ejabberdctl register ann host SECRET
iwconfig wlan0 key SECRET
setx API_KEY SECRET
wg set wg0 peer a preshared-key SECRET
sendemail -xu ann -xp SECRET
swaks --au ann --ap SECRET
mosquitto_passwd -b file ann SECRET
oathtool --totp -b SECRET
signtool sign /f c.pfx /p SECRET a.exe
osslsigncode sign -pkcs12 c.pfx -pass SECRET -in a
caddy hash-password --plaintext SECRET
poetry publish -u ann -p SECRET
ctr images pull -u ann:SECRET image
cf set-env app DB_PASSWORD SECRET
knife bootstrap host -x ann -P SECRET
gcloud auth activate-refresh-token ann SECRET
choco push a.nupkg -k SECRET
railway login -t SECRET
any-program -u ann -p SECRET
any-program -p Xk92pLqZSECRET
New-LocalUser (ConvertTo-SecureString SECRET -AsPlainText)
mysql -pSECRET shop
mysqldump -uroot -pSECRET --all-databases
/usr/bin/mysql -h db -pSECRET
mariadb --password=SECRET
mysqladmin -u root password SECRET
sshpass -p SECRET ssh -p 22 host
sshpass -pSECRET scp a host:b
redis-cli -h cache -a SECRET ping
redis-cli AUTH ann SECRET
redis-cli CONFIG SET requirepass SECRET
docker login -u ann -p SECRET registry.example.org
docker login --password SECRET
docker exec -it db mysql -uroot -pSECRET
docker run -e POSTGRES_PASSWORD=SECRET postgres
gpg --batch --passphrase SECRET -d file
gpg --passphrase=SECRET -d file
curl -u ann:SECRET https://example.org
curl -sSu ann:SECRET https://example.org
curl -sSfuann:SECRET https://example.org
curl --user=ann:SECRET https://example.org
curl --proxy-user ann:SECRET https://example.org
curl -H 'Authorization: Bearer SECRET' https://example.org
curl -H 'X-Api-Key: SECRET' https://example.org
curl -o zip -u ann:SECRET https://example.org
curl https://ann:SECRET@example.org/
curl -d 'user=ann&password=SECRET' https://example.org
curl -b SECRET https://example.org
wget --password=SECRET https://example.org
wget --http-password SECRET https://example.org
http -a ann:SECRET example.org
psql postgresql://ann:SECRET@db/shop
psql 'host=db password=SECRET'
mongo -u ann -p SECRET shop
mongosh mongodb://ann:SECRET@db/
openssl rsa -in key.pem -passin pass:SECRET
openssl enc -aes-256-cbc -k SECRET
openssl passwd -6 SECRET
az login -u ann -p SECRET
ldapsearch -x -D cn=ann -w SECRET
htpasswd -b .htpasswd ann SECRET
htpasswd -nb ann SECRET
smbclient //host/share -U ann%SECRET
7z a -pSECRET out.7z in
rar a -hpSECRET out.rar in
zip -P SECRET out.zip in
zip -rP SECRET out.zip in
unzip -P SECRET out.zip
qpdf --encrypt SECRET owner 256 -- in.pdf out.pdf
restic -r repo -p SECRET backup
vault login SECRET
vault login token=SECRET
vault kv put kv/shop value=SECRET
heroku config:set ANYTHING=SECRET
kubectl --token SECRET get pods
kubectl --token=SECRET get pods
kubectl create secret generic shop --from-literal=key=SECRET
helm registry login -u ann -p SECRET example.org
helm install shop --set db.password=SECRET
twine upload -u ann -p SECRET dist/x.whl
aws configure set aws_secret_access_key SECRET
npm config set //registry.example.org/:_authToken SECRET
git -c 'http.extraheader=Authorization: Basic SECRET' fetch
git clone https://ann:SECRET@example.org/x.git
keytool -list -storepass SECRET
sqlplus ann/SECRET@db
rabbitmqctl add_user ann SECRET
mc alias set shop https://example.org ann SECRET
lftp -u ann,SECRET host
plink -pw SECRET host
xfreerdp /u:ann /p:SECRET /v:host
mosquitto_pub -u ann -P SECRET -t x
DB_PASSWORD=SECRET ./run
env DB_PASSWORD=SECRET SHOP=1 ./run
env SSHPASS=SECRET sshpass -e ssh host
sudo -u app mysql -pSECRET
sudo env A=b nice -n 5 /opt/bin/redis-cli -a SECRET
ssh host mysql -pSECRET shop
ssh host 'mysql -pSECRET shop'
sh -c 'mysql -pSECRET -e "select 1"'
bash -lc 'cd /srv && redis-cli -a "SECRET" ping; ls'
sh -c 'x=$(mysql -pSECRET)'
sh -c 'DB_PASSWORD=SECRET ./run'
sh -c "bash -c 'sshpass -p SECRET ssh host'"
su - app -c 'mysql -pSECRET'
sh -c 'echo SECRET | docker login -u ann --password-stdin'
sh -c 'printf SECRET | gpg --passphrase-fd 0 -d file'
git config http.extraheader 'Authorization: Bearer SECRET'
aws ssm put-parameter --name n --value SECRET
aws secretsmanager create-secret --secret-string SECRET
az keyvault secret set -n n --value SECRET
net use Z: //host/share SECRET
ngrok config add-authtoken SECRET
pulumi config set key SECRET
bw login ann SECRET
tool --token SECRET
tool --api-key=SECRET
tool -token SECRET
tool --passphrase SECRET
tool -Dsonar.password=SECRET
schtasks /create /tn x /ru ann /rp SECRET
cmdkey /add:fs1 /user:ann /pass:SECRET
reg add HKLM /v DefaultPassword /t REG_SZ /d SECRET /f
net use z: /user:ann SECRET
ConvertTo-SecureString SECRET -AsPlainText
sh -c 'echo ann:SECRET | chpasswd'
sh -c 'chpasswd <<< ann:SECRET'
"""
LINES = [line for line in PLANTED.splitlines() if line.strip()]


@pytest.mark.parametrize("line", LINES)
def test_a_secret_of_a_common_program_is_in_no_line(line):
    """Wherever the program takes it; neither as words nor quoted."""
    words = shlex.split(line.replace("SECRET", SECRET))
    assert SECRET not in redacted_line(words)
    assert not any(SECRET in word for word in redacted_words(words))


@pytest.mark.parametrize("line", LINES)
def test_a_secret_of_a_common_program_is_in_no_text(line):
    """One table serves both: a command that an error quotes, as a line and as a list of words."""
    line = line.replace("SECRET", SECRET)
    text = Redactor().text(f"failed: {line}\nexit code 1")
    assert SECRET not in text
    assert Redactor().text(text) == text
    words = Redactor().text(f"Command {shlex.split(line)} returned non-zero exit status 1.")
    assert SECRET not in words


def test_programs_of_windows_are_known_too():
    """With a suffix, in any case, with backslashes in front."""
    words = ["C:\\Tools\\MySQL.EXE", f"-p{SECRET}", "shop"]
    assert redacted_words(words) == ["C:\\Tools\\MySQL.EXE", "-p[redacted]", "shop"]


HARMLESS = """
ssh -p 22 host ls
docker run -p 80:80 nginx
mkdir -p a/b
tar -pxf a.tar
rsync -a --delete src/ dst/
git commit -m 'mend the parser'
git push -u origin main
mysql -p shop
mysql -u root -h db shop
grep -r password src
python3 -m pytest -p no:cacheprovider
psql --password -h db
curl -fsS https://example.org/health
curl -u ann https://example.org
openssl rsa -passin file:key.pass -in key.pem
openssl rsa -passin env:KEY_PASS -in key.pem
restic --password-file /etc/restic
tool --password $PASSWORD
tool --password=
sh -c 'redis-cli -a "$REDIS" ping'
sh -c 'echo "unbalanced'
sshpass -e ssh -p 22 host
vault login $TOKEN
kubectl get pods -n shop
sh -c 'echo done | tee log'
make deploy ENV=prod
tool --token
openssl req -new -key site.key -out site.csr
reg add HKLM /v Path /d x1y2
sh -c 'echo "$PW" | sudo -S ls'
"""


@pytest.mark.parametrize("line", [line for line in HARMLESS.splitlines() if line.strip()])
def test_a_command_without_a_secret_stays_as_it_is(line):
    """Ports, folders, users, files of secrets, variables; nor does a text that quotes it."""
    words = shlex.split(line)
    assert redacted_words(words) == words
    assert Redactor().text(f"failed: {line}") == f"failed: {line}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mysql -u root -p'hun ter2' shop", "mysql -u root -p'[redacted]' shop"),
        ('sshpass -p "hunter2" ssh host', 'sshpass -p "[redacted]" ssh host'),
        ("curl -u 'ann:hun:ter2' a.org", "curl -u 'ann:[redacted]' a.org"),
        ("lftp -u ann,'hunter2' host", "lftp -u ann,'[redacted]' host"),
        ("ConvertTo-SecureString 'hun''ter2' -Force", "ConvertTo-SecureString '[redacted]' -Force"),
        ("['sshpass', '-p', 'hun ter2', 'ssh']", "['sshpass', '-p', '[redacted]', 'ssh']"),
        ("vault login failed; vault login Xk92pLqZ1", "vault login failed; vault login [redacted]"),
        ("zip -P '' a; redis-cli -a", "zip -P '' a; redis-cli -a"),
        ('mysql -"p"hunter2 -p', "mysql [redacted] -p"),
        ("su -c 'mysql -phunter2 -v' -l", "su -c 'mysql -p[redacted] -v' -l"),
    ],
)
def test_what_surrounds_the_secret_of_a_command_in_a_text_stays(text, shown):
    """Its quotes, the user, the program and the next command."""
    assert Redactor().text(text) == shown


def test_what_is_no_secret_of_a_line_stays():
    """The user, the host and the other options can be read."""
    line = shlex.split("sshpass -p x1 ssh -p 22 ann@host mysql -uroot -px1 --batch")
    wanted = "sshpass -p [redacted] ssh -p 22 ann@host mysql -uroot -p[redacted] --batch"
    assert redacted_words(line) == wanted.split()
    inner = redacted_words(["sh", "-c", "cat 'a b' | mysql -px1 > out; ls \"$HOME\""])
    assert inner[2] == "cat 'a b' | mysql -p[redacted] > out; ls \"$HOME\""


def test_names_of_ones_own_are_secret_in_command_lines_too():
    """The redactor decides which names are."""
    own = Redactor(fields=["patient id"])
    assert redacted_words(["tool", "--patient-id", "7"], own) == [
        "tool", "--patient-id", "[redacted]",
    ]  # fmt: skip


def test_a_line_that_is_no_text_can_be_stored():
    """A file's name may be any bytes."""
    assert redacted_line(["cat", "a\udcff"]) == "cat 'a\\udcff'"


def test_a_command_line_inside_many_others_ends():
    """Only so many are looked at; the last one as a text."""
    line = "true a"
    for _ in range(6):
        line = shlex.join(["sh", "-c", line])
    assert redacted_words(shlex.split(line))[0] == "sh"


WORDS = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.sampled_from([*PROGRAMS, *"-p -a --token -u login auth -b --encrypt config".split()]),
    ),
    max_size=8,
)


@settings(max_examples=100)
@given(WORDS)
def test_any_words_give_as_many_words_and_twice_is_once(words):
    """Whatever they are; what was redacted is not changed again."""
    found = redacted_words(words)
    assert len(found) == len(words)
    assert redacted_words(found) == found


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["mysql", "sudo", "-v", "x y", "'", '"', "a=b"]), max_size=6))
def test_a_secret_is_hidden_whatever_stands_before_its_program(words):
    """Words in front of a program do not take its options away."""
    found = redacted_words([*words, "redis-cli", "-a", SECRET])
    assert found[-1] == "[redacted]"
