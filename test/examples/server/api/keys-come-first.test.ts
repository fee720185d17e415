/**
 * A client without a key costs the head of its request: its answer comes before anything of the body does, whatever it asks
 * for. And a body of a client with a key is parsed as fast as JSON is, seeds of 64 bits included.
 */

import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseBody } from '../../../../examples/server/api/fields.ts';
import { blockBytes, keys, LiveServer } from '../liveServer.ts';

let server: LiveServer;
beforeAll(async () => {
  server = await LiveServer.start({ apiKeys: keys, hbmBytes: 32 * blockBytes, ddrBytes: 0 });
});
afterAll(() => server[Symbol.asyncDispose]());

/** Sends a head alone. @returns what comes back until its body is there, or the connection ends */
function answerTo(head: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(server.url);
    const socket = connect(Number(port), hostname, () => socket.write(`${head}\r\n\r\n`));
    let text = '';
    const end = (): void => {
      socket.destroy();
      resolve(text);
    };
    socket.on('data', (piece) => {
      text += piece;
      if (/\r\n\r\n.*\}$/s.test(text)) end();
    });
    socket.once('end', end).once('error', reject);
  });
}

describe('a request without a known key', () => {
  const methods = ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];
  const paths = ['/v1/chat/completions', '/v1/completions', '/v1/models', '/', '/health', '/nowhere'];
  const wrong = ['', 'authorization: Bearer zzz', 'authorization: Basic key-a', 'authorization: key-a'];
  const bodies = ['content-length: 1000000', 'transfer-encoding: chunked'];
  const cases = methods.flatMap((method) => paths.map((path) => [method, path] as const));

  it.each(cases)('%s %s is answered before its body comes', async (method, path) => {
    for (const key of wrong) {
      for (const body of bodies) {
        const lines = ['host: x', key, 'content-type: application/json', body].filter((line) => line !== '');
        const answer = await answerTo(`${method} ${path} HTTP/1.1\r\n${lines.join('\r\n')}`);
        expect(answer, `${key}, ${body}`).toMatch(/^HTTP\/1\.1 401 /);
        expect(answer).toContain('"code":"invalid_api_key"');
        // a body of unknown length is not waited for
        expect(/\r\nconnection: close\r\n/i.test(answer), body).toBe(body.startsWith('transfer'));
      }
    }
  });

  it('that sends its body whole reads the answer, and its connection goes on', async () => {
    const { hostname, port } = new URL(server.url);
    const socket = connect(Number(port), hostname);
    const body = `{"messages":[${'0,'.repeat(200_000)}0]}`;
    const head = `host: x\r\ncontent-type: application/json\r\ncontent-length: ${body.length}`;
    let text = '';
    socket.on('data', (piece) => (text += piece));
    socket.write(`POST /v1/completions HTTP/1.1\r\n${head}\r\n\r\n${body}`);
    socket.write('GET /health HTTP/1.1\r\nhost: x\r\n\r\n');
    await expect.poll(() => text).toContain('"status":"ok"');
    expect(text).toMatch(/^HTTP\/1\.1 401 /);
    socket.destroy();
  });
});

describe('a body', () => {
  const bodyOf = (text: string): { seed?: unknown } => parseBody(Buffer.from(text)) as { seed?: unknown };

  it('has its seed exactly, and other numbers as JSON has them', () => {
    const big = '18446744073709551615';
    expect(bodyOf(`{"seed":${big},"top_k":${big}}`)).toEqual({ seed: 2n ** 64n - 1n, top_k: Number(big) });
    expect(bodyOf(`{"seed":1,"x":{"seed":${big}},"\\u0073eed": -9223372036854775808 }`).seed).toBe(
      -(2n ** 63n),
    );
    expect(bodyOf('{"seed":1e30}').seed).toBe(1e30);
    expect(bodyOf(`{"prompt":"\\"seed\\":${big}","seed":7}`).seed).toBe(7);
    expect(parseBody(Buffer.from(`[{"seed":${big}}]`))).toEqual([{ seed: Number(big) }]);
  });
});
