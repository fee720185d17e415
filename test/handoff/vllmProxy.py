"""A proxy before prefill and decode servers, as vLLM's own for its NIXL connector speaks to them.

The prefill leg asks for one token and no stream, without stream_options and min_tokens, with every field of
kv_transfer_params null; the decode leg is the client's request with what the prefill leg answered, unread. Both legs have
the id of the request, and an Authorization header. A prefill leg that fails is an error of the request.

    python3 vllmProxy.py --port 8192 --prefiller-host 127.0.0.1 --prefiller-port 8100 \
        --decoder-host 127.0.0.1 --decoder-port 8200
"""

import argparse
import http.client
import json
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, default=8000)
for side in ("prefiller", "decoder"):
    parser.add_argument(f"--{side}-host", default="127.0.0.1")
    parser.add_argument(f"--{side}-port", type=int, required=True)
args = parser.parse_args()


def leg(host, port, path, body, request_id):
    connection = http.client.HTTPConnection(host, port)
    headers = {
        "Content-Type": "application/json",
        "Authorization": "Bearer None",
        "X-Request-Id": request_id,
    }
    connection.request("POST", path, json.dumps(body), headers)
    return connection, connection.getresponse()


def prefill_body(asked):
    body = {name: value for name, value in asked.items() if name not in ("stream_options", "min_tokens")}
    body["kv_transfer_params"] = {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
    body["stream"] = False
    body["max_tokens"] = 1
    if "max_completion_tokens" in body:
        body["max_completion_tokens"] = 1
    return body


class Proxy(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, "application/json", b'{"status": "ok"}')

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request_id = str(uuid.uuid4())
        connection, answer = leg(args.prefiller_host, args.prefiller_port, self.path, prefill_body(asked), request_id)
        said = answer.read()
        connection.close()
        if answer.status != 200:
            self.answer(502, "application/json", said)
            return
        params = json.loads(said).get("kv_transfer_params", {})
        if params:
            asked["kv_transfer_params"] = params
        connection, answer = leg(args.decoder_host, args.decoder_port, self.path, asked, request_id)
        # as it comes, and to the end of the connection
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        while part := answer.read1(65536):
            self.wfile.write(part)
            self.wfile.flush()
        connection.close()


ThreadingHTTPServer(("127.0.0.1", args.port), Proxy).serve_forever()
