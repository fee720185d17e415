/**
 * A request that two servers serve: one computes its prompt, another one its output. The legs are those of vLLM's
 * connectors, as llm-d's sidecar sends them:
 *
 *     prefill   the client's body, one token, no stream, kv_transfer_params {do_remote_decode: true, ...}
 *     decode    the client's body as it came, with the kv_transfer_params of the first answer, as they are
 *
 * What the first server says is passed on and not looked at. Where it fails, the second one computes the prompt too. Numbers of
 * both bodies stand as they were written: a seed or an id of a server may be longer than a number of JavaScript.
 */

import { memberText, withMembers, withoutMark } from '../../runtime/boundedJson.ts';

export type BackendRole = 'monolithic' | 'prefill' | 'decode';
export const backendRoles: readonly BackendRole[] = ['monolithic', 'prefill', 'decode'];

const TRANSFER = 'kv_transfer_params';

const firstParams = JSON.stringify({
  do_remote_decode: true,
  do_remote_prefill: false,
  remote_engine_id: null,
  remote_block_ids: null,
  remote_host: null,
  remote_port: null,
});

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

/**
 * The body of the first leg.
 * @param body that was read before: a JSON object @param hasChoices whether the API has a number of choices
 */
export function prefillBody(body: Buffer, hasChoices: boolean): Buffer {
  const text = textOf(body);
  const asksCompletion = memberText(text, 'max_completion_tokens') !== undefined;
  return Buffer.from(
    withMembers(text, (name) => outputFields.includes(name), {
      stream: 'false',
      ...(hasChoices ? { n: '1' } : {}),
      max_tokens: '1',
      ...(asksCompletion ? { max_completion_tokens: '1' } : {}),
      [TRANSFER]: firstParams,
    }),
  );
}

/** The parameters in an answer of the first leg, as they are written; undefined where it has none. */
export function transferParamsIn(answer: Buffer): string | undefined {
  try {
    const text = textOf(answer);
    const { [TRANSFER]: params } = JSON.parse(text) as { [TRANSFER]?: unknown };
    return typeof params === 'object' && params !== null ? memberText(text, TRANSFER) : undefined;
  } catch {
    return undefined;
  }
}

/** The body of the second leg. @param params of the first leg, as JSON */
export function decodeBody(body: Buffer, params: string): Buffer {
  return withField(body, TRANSFER, params);
}

/** The body with a field as its last one, in the place of all that have its name: servers do not agree on which of two counts. */
export function withField(body: Buffer, name: string, json: string): Buffer {
  return Buffer.from(withMembers(textOf(body), () => false, { [name]: json }));
}

function textOf(body: Buffer): string {
  return withoutMark(body.toString('utf8'));
}
