"""An HTTPS server with a certificate of its own making: tls_server.py FOLDER. Writes FOLDER/cert.pem, then FOLDER/port.

Every connection is shown the certificate that is in cert.pem by then; other.pem is another one. Answers GET with an empty listing, and breaks the connection in the middle of a PUT.
"""

import datetime
import ipaddress
import os
import socketserver
import ssl
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def make_certificate(path):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    plain = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with open(path, "wb") as out:
        out.write(plain + certificate.public_bytes(encoding))


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            context.load_cert_chain(folder + "/cert.pem")
            self.request = context.wrap_socket(self.request, server_side=True)
            stream = self.request.makefile("rb")
            while line := stream.readline():
                while stream.readline().strip():
                    pass
                if line.startswith(b"PUT"):
                    os.close(self.request.detach())  # without a word
                    return
                body = b"<ListBucketResult></ListBucketResult>"
                self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        except OSError:
            pass  # a client that does not trust us

    def finish(self):
        pass


folder = sys.argv[1]
make_certificate(folder + "/cert.pem")
make_certificate(folder + "/other.pem")
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.num_tickets = 0  # a session that is resumed shows no certificate
socketserver.ThreadingTCPServer.daemon_threads = True
with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
    with open(folder + "/port.tmp", "w") as out:
        out.write(str(server.server_address[1]))
    os.rename(folder + "/port.tmp", folder + "/port")
    server.serve_forever()
