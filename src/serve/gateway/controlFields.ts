/**
 * Fields that a client may not set in the body of a request, since a server would obey them: fetch KV from an address
 * of the client's choice, hand it there, or serve by another engine than was decided. Only the programs between clients
 * and servers set such fields. They are set to null wherever they stand, whatever the body calls itself: servers read
 * JSON under any type.
 *
 * A body is read as JSON unless its type says what it is, and cannot be JSON. One that could be read in two ways, by
 * its encoding or by its characters, is refused.
 */

import { memberText, withMembers, withoutMark } from '../../runtime/boundedJson.ts';
import { withField } from './twoLegs.ts';

/** Fields that control a server, grouped by the servers that take them. */
const controlFields: ReadonlySet<string> = new Set([
  // vLLM: where KV is fetched from and handed to, of prompts and of encoders; which engine serves
  'kv_transfer_params',
  'ec_transfer_params',
  'data_parallel_rank',
  // SGLang: the server that has computed the prompt
  'bootstrap_host',
  'bootstrap_port',
  'bootstrap_room',
  'bootstrap_pair_key',
  'routed_dp_rank',
  'disagg_prefill_dp_rank',
  // TensorRT-LLM
  'disaggregated_params',
  // Dynamo, within `nvext`
  'backend_instance_id',
  'prefill_worker_id',
  'decode_worker_id',
  'dp_rank',
]);

/** Fields whose own fields servers take as if they stood beside them. */
const carriers: readonly string[] = ['vllm_xargs', 'extra_args', 'nvext'];

/** Types of bodies that are no JSON, whatever is in them. */
const opaqueTypes =
  /^\s*(multipart\/form-data|application\/octet-stream|(audio|image|video)\/[\w.+-]+)\s*(;|$)/i;

/** Whether a body of this type is read, and must be a JSON object. */
export function mustBeJson(contentType: string | undefined): boolean {
  return contentType === undefined || !opaqueTypes.test(contentType);
}

/** The body as it may go on. @param fields what `JSON.parse` made of it */
export function withoutControl(body: Buffer, fields: Readonly<Record<string, unknown>>): Buffer {
  let clean = body;
  for (const name of Object.keys(fields)) {
    if (controlFields.has(name)) clean = withField(clean, name, 'null');
    else if (carriers.includes(name)) clean = withoutCarried(clean, name, fields[name]);
  }
  return clean;
}

function withoutCarried(body: Buffer, name: string, carried: unknown): Buffer {
  if (typeof carried !== 'object' || carried === null) return body;
  const names = Object.keys(carried).filter((each) => controlFields.has(each));
  if (names.length === 0) return body;
  const text = memberText(withoutMark(body.toString('utf8')), name) ?? '{}';
  return withField(
    body,
    name,
    withMembers(text, (each) => names.includes(each), {}),
  );
}
