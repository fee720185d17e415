/**
 * `kv_transfer_params` of the two legs of a request, in the form in which vLLM's prefill and decode servers have it and
 * proxies pass it on:
 *
 *     prefill leg asks   do_remote_decode: true, the rest null or absent; max_tokens 1, no stream
 *     its answer has     do_remote_prefill: true, remote_engine_id, remote_block_ids, remote_host, remote_port
 *     decode leg has     what that answer had, unread
 *
 * `remote_block_ids` is a list of one text here: a reference (reference.ts) instead of numbers of blocks, so that it can
 * name no block that has passed to another request meanwhile.
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { HandoffReference } from './reference.ts';

/** The wish that a request's transfer parameters express. */
export type TransferWish =
  | { readonly kind: 'none' }
  /** Compute the prompt, and hand its KV off. */
  | { readonly kind: 'prefill' }
  /** The KV of the prompt is where these say. */
  | { readonly kind: 'decode'; readonly params: TransferParams }
  /** Neither: `problem` is what to tell the client. */
  | { readonly kind: 'wrong'; readonly problem: string };

/** Fields of `kv_transfer_params` of a decode leg: where the blocks lie. Fields of other servers are passed over. */
export interface TransferParams {
  readonly reference: string;
  readonly host: string;
  readonly port: number;
}

/** Longest reference and longest host that are looked at. */
const TEXT_MAX = 1024;

/** Reads what a request asks for by its `kv_transfer_params`: to hand its blocks off, to fetch them, or neither. Values that no server of ours made are a decode leg with an empty reference. */
export function transferWish(value: unknown): TransferWish {
  if (value === undefined || value === null) return { kind: 'none' };
  if (typeof value !== 'object' || Array.isArray(value)) {
    return { kind: 'wrong', problem: 'kv_transfer_params must be an object, as the prefill server gave it' };
  }
  const fields = value as Readonly<Record<string, unknown>>;
  const flags = ['do_remote_decode', 'do_remote_prefill'] as const;
  for (const name of flags) {
    const flag = fields[name] ?? false;
    if (typeof flag !== 'boolean')
      return { kind: 'wrong', problem: `kv_transfer_params.${name} must be true or false` };
  }
  const [hands, takes] = flags.map((name) => fields[name] === true);
  if (hands && takes) {
    const problem = 'kv_transfer_params has do_remote_decode and do_remote_prefill. Give one of them';
    return { kind: 'wrong', problem };
  }
  if (hands) return { kind: 'prefill' };
  if (!takes) return { kind: 'none' };
  const { remote_block_ids: ids, remote_host: host, remote_port: port } = fields;
  const reference: unknown = Array.isArray(ids) && ids.length === 1 ? ids[0] : undefined;
  const isText = (text: unknown): text is string => typeof text === 'string' && text.length <= TEXT_MAX;
  const isPort = Number.isSafeInteger(port) && (port as number) >= 0 && (port as number) < 65_536;
  const params = {
    reference: isText(reference) ? reference : '',
    host: isText(host) ? host : '',
    port: isPort ? (port as number) : 0,
  };
  return { kind: 'decode', params };
}

/** Makes `kv_transfer_params` for the answer of a prefill leg, by which the decode leg fetches the blocks. @param engine names the prefill server */
export function transferAnswer(reference: HandoffReference, engine: string): object {
  checkInputs(
    { reference, engine },
    { reference: is.fields({ text: is.text(), id: is.text() }), engine: is.text() },
  );
  const { text, id, host, port } = reference;
  return {
    do_remote_prefill: true,
    do_remote_decode: false,
    remote_engine_id: engine,
    remote_request_id: id,
    remote_block_ids: [text],
    remote_host: host === '' ? null : host,
    remote_port: port === 0 ? null : port,
    tp_size: 1,
  };
}
