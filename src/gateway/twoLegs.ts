/**
 * A request that two servers serve: one computes its prompt, another one its output. The legs are those of vLLM's
 * connectors, as llm-d's sidecar sends them:
 *
 *     prefill   the client's body, one token, no stream, kv_transfer_params {do_remote_decode: true, ...}
 *     decode    the client's body as it came, with the kv_transfer_params of the first answer, as they are
 *
 * What the first server says is passed on and not looked at. Where it fails, the second one computes the prompt too.
 */

import { withoutMark } from '../runtime/boundedJson.ts';

export type BackendRole = 'monolithic' | 'prefill' | 'decode';
export const backendRoles: readonly BackendRole[] = ['monolithic', 'prefill', 'decode'];

const TRANSFER = 'kv_transfer_params';

const firstParams = {
  do_remote_decode: true,
  do_remote_prefill: false,
  remote_engine_id: null,
  remote_block_ids: null,
  remote_host: null,
  remote_port: null,
};

/** Fields of a body that a prompt's KV does not depend on, and that a server may refuse beside one token without a stream. */
const outputFields = [
  'stream_options',
  'min_tokens',
  'best_of',
  'logprobs',
  'top_logprobs',
  'prompt_logprobs',
  'echo',
];

/** The body of the first leg. @param body that was read before: a JSON object */
export function prefillBody(body: Buffer): Buffer {
  const fields = JSON.parse(withoutMark(body.toString('utf8')), exactly) as object;
  const kept = Object.entries(fields).filter(([name]) => !outputFields.includes(name));
  const limits = {
    stream: false,
    n: 1,
    max_tokens: 1,
    ...('max_completion_tokens' in fields ? { max_completion_tokens: 1 } : {}),
  };
  return Buffer.from(JSON.stringify({ ...Object.fromEntries(kept), ...limits, [TRANSFER]: firstParams }));
}

/** A number that JavaScript would round stands as it was written. */
function exactly(_: string, value: unknown, context?: { readonly source?: string }): unknown {
  if (typeof value !== 'number' || Number.isSafeInteger(value) || context?.source === undefined) return value;
  // the library's types do not have `rawJSON` yet; Node has it from 21 on
  return (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(context.source);
}

/** The parameters in an answer of the first leg, as JSON; undefined where it has none. */
export function transferParamsIn(answer: Buffer): string | undefined {
  try {
    const { [TRANSFER]: params } = JSON.parse(answer.toString('utf8'), exactly) as { [TRANSFER]?: unknown };
    return typeof params === 'object' && params !== null ? JSON.stringify(params) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The body of the second leg. Parameters of the client's own go no further: they would have a server fetch from wherever
 * the client says.
 * @param params of the first leg, undefined without one
 */
export function decodeBody(body: Buffer, params: string | undefined): Buffer {
  if (params !== undefined) return withField(body, TRANSFER, params);
  return hasTransfer(body) ? withField(body, TRANSFER, 'null') : body;
}

function hasTransfer(body: Buffer): boolean {
  // the name may be written with escapes
  return body.includes(TRANSFER) || body.includes('\\u');
}

/** The body with a field as its last one: of a name that stands twice the last one counts, and the rest stays as it was sent. */
export function withField(body: Buffer, name: string, json: string): Buffer {
  const end = body.lastIndexOf('}');
  const isEmpty = /^\s*\{\s*$/.test(body.subarray(0, Math.min(end, 64)).toString('latin1')) && end <= 64;
  const field = `${isEmpty ? '' : ','}"${name}":${json}`;
  return Buffer.concat([body.subarray(0, end), Buffer.from(field), body.subarray(end)]);
}
