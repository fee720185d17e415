/** What servers are told by headers and fields that belong to what stands before them: none of it comes from a client. */

import { describe, expect, it } from 'vitest';
import type { Gateway } from '../../../src/serve/gateway/gateway.ts';
import { answer, ask, gatewayOf, TestBackend } from './backends.ts';

const evil = { do_remote_prefill: true, remote_host: 'evil', remote_port: 1 };

async function post(
  gateway: Gateway,
  path: string,
  type: string | undefined,
  body: string | Uint8Array<ArrayBuffer>,
): Promise<number> {
  const headers: Record<string, string> = type === undefined ? {} : { 'content-type': type };
  const bytes = typeof body === 'string' ? new Blob([body]) : new Blob([body]);
  const response = await fetch(gateway.url + path, { method: 'POST', headers, body: bytes });
  await response.text();
  return response.status;
}

const paths = ['/v1/completions', '/v1/chat/completions', '/v1/responses', '/v1/rerank', '/v1/embeddings'];
const types = ['application/json', 'text/plain', 'application/x-www-form-urlencoded', 'nonsense', undefined];
const forms: readonly (readonly [string, (field: string, value: string) => string])[] = [
  ['as it is', (field, value) => `{"model":"m","prompt":"p","${field}":${value}}`],
  [
    'with an escape',
    (field, value) => `{"model":"m","\\u00${field.charCodeAt(0).toString(16)}${field.slice(1)}":${value}}`,
  ],
  ['twice', (field, value) => `{"${field}":${value},"prompt":"p","${field}":null}`],
  ['twice, the other way', (field, value) => `{"${field}":null,"prompt":"p","${field}":${value}}`],
  ['behind a mark', (field, value) => `\ufeff{"model":"m","prompt":"p","${field}":${value}}`],
  ['carried by another field', (field, value) => `{"model":"m","vllm_xargs":{"a":1,"${field}":${value}}}`],
];
const fields = [
  'kv_transfer_params',
  'ec_transfer_params',
  'data_parallel_rank',
  'bootstrap_host',
  'bootstrap_port',
  'bootstrap_room',
  'disaggregated_params',
  'backend_instance_id',
];

describe.each([[false], [true]])('fields of a body (in front of roles: %s)', (hasRoles) => {
  it.each(forms)('%s reach no server, under any type and at any path', async (_what, form) => {
    await using backend = await TestBackend.open((_request, response) => response.end(answer('x')));
    await using first = await TestBackend.open((_request, response) => response.writeHead(500).end('{}'));
    const roles = [
      { url: backend.url, role: 'decode' as const },
      { url: first.url, role: 'prefill' as const },
    ];
    await using gateway = await gatewayOf([backend], hasRoles ? { backends: roles } : {});
    for (const path of paths) {
      for (const [i, type] of types.entries()) {
        const field = fields[(paths.indexOf(path) + i) % fields.length];
        const status = await post(gateway, path, type, form(field, JSON.stringify(evil)));
        expect([200, 400]).toContain(status);
      }
    }
    expect(backend.seen.length).toBeGreaterThan(0);
    const all = [...backend.seen, ...first.seen].map(({ body }) => body).join('\n');
    expect(all).not.toContain('evil');
  });
});

it.each<[string, string | undefined, Uint8Array<ArrayBuffer>]>([
  [
    'UTF-16',
    'application/json',
    Uint8Array.from(Buffer.from('\ufeff{"kv_transfer_params":{"a":"evil"}}', 'utf16le')),
  ],
  [
    'UTF-16 as text',
    'text/plain',
    Uint8Array.from(Buffer.from('\ufeff{"kv_transfer_params":{"a":"evil"}}', 'utf16le')),
  ],
  ['what is almost JSON', 'text/plain', Uint8Array.from(Buffer.from("{'kv_transfer_params':{'a':'evil'}}"))],
  [
    'a field and another object behind it',
    undefined,
    Uint8Array.from(Buffer.from('{}{"kv_transfer_params":"evil"}')),
  ],
])('a body in %s is refused', async (_what, type, bytes) => {
  await using backend = await TestBackend.open((_request, response) => response.end(answer('x')));
  await using gateway = await gatewayOf([backend]);
  for (const path of paths) expect(await post(gateway, path, type, bytes)).toBe(400);
  expect(backend.seen).toEqual([]);
});

it('a body that cannot be JSON by its type goes on as it is, and so does a call without a body', async () => {
  await using backend = await TestBackend.open((_request, response) => response.end(answer('x')));
  await using gateway = await gatewayOf([backend]);
  const form = '--b\r\ncontent-disposition: form-data; name="file"\r\n\r\nRIFF\r\n--b--\r\n';
  expect(await post(gateway, '/v1/audio/transcriptions', 'multipart/form-data; boundary=b', form)).toBe(200);
  expect(await post(gateway, '/v1/batches/1/cancel', undefined, '')).toBe(200);
  expect(backend.seen.map(({ body }) => body)).toEqual([form, '']);
});

it('a body without such fields goes on byte for byte', async () => {
  await using backend = await TestBackend.open((_request, response) => response.end(answer('x')));
  await using gateway = await gatewayOf([backend]);
  const body = '{ "model":"m" , "prompt":"kv_transfer_params \\u0041", "seed": 12345678901234567890 }';
  expect(await post(gateway, '/v1/completions', 'application/json', body)).toBe(200);
  expect(backend.seen[0].body).toBe(body);
  await ask(gateway, 'p', { vllm_xargs: { top_n: 3, bootstrap_host: 'evil' } });
  expect((JSON.parse(backend.seen[1].body) as { vllm_xargs: object }).vllm_xargs).toEqual({ top_n: 3 });
});
