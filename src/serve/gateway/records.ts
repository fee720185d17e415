/**
 * Inputs and decisions of a gateway, as plain data: one record a line of its log. Inputs are all that decisions depend
 * on, so the same inputs in the same order give the same decisions, line for line. Times are whole microseconds since
 * the gateway began, and never go back.
 */

import type { EndKind } from '../../sim/control/controlPlane.ts';
import type { InstanceReport } from '../../sim/control/policy.ts';

/** A request as decisions see it. Of its text only keys are left. */
export interface ArrivalRecord {
  readonly number: number;
  /** The id that its client is told in the header `x-request-id`. */
  readonly id: string;
  readonly tenantId: string;
  readonly sloClass: string;
  readonly model: string;
  readonly adapter: string;
  readonly sessionId: string;
  readonly promptTokens: number;
  /** Absolute in microseconds, 0 for none. */
  readonly deadlineUs: number;
  /** Time to the first token that it asks for in microseconds, 0 for none. */
  readonly sloTargetUs: number;
  /** Keys of the full blocks of its prompt, 16 bytes each, in base64. */
  readonly keys: string;
}

/** A report of a backend, in the fields that the control plane reads. */
export type ReportRecord = Readonly<Omit<InstanceReport, 'usedBlocks' | 'freeBlocks' | 'adapters'>> & {
  readonly usedBlocks: readonly number[];
  readonly freeBlocks: readonly number[];
  readonly adapters: readonly string[];
};

/** `ejected`: it is well by its own word, and fails. `onTrial`: the one request with which that is tried again is there. */
export type RoutableWhy = 'down' | 'draining' | 'ejected' | 'onTrial';

export type GatewayInput = { readonly atUs: number } & (
  | {
      /** A backend is known: an instance with a number of its own. Requests go there once it is routable. */
      readonly in: 'backend';
      readonly instance: number;
      readonly id: string;
      readonly model: string;
      /** Left out for one that computes prompts and outputs. */
      readonly role?: 'prefill' | 'decode';
      /** Blocks of each tier, HBM first. */
      readonly capacityBlocks: readonly number[];
    }
  | {
      readonly in: 'routable';
      readonly instance: number;
      readonly routable: boolean;
      /** For people; left out for one that is routable. */
      readonly why?: RoutableWhy;
    }
  /** The backend is gone, or began anew with an empty cache. */
  | { readonly in: 'gone'; readonly instance: number }
  | { readonly in: 'report'; readonly instance: number; readonly report: ReportRecord }
  /** Blocks were published in the tier at that position, or lost there; keys as in a request. */
  | {
      readonly in: 'kv';
      readonly instance: number;
      readonly tier: number;
      readonly stored: boolean;
      readonly keys: string;
    }
  | { readonly in: 'arrive'; readonly request: ArrivalRecord }
  /** The time has come that the last decision said. */
  | { readonly in: 'wake' }
  /** The backend said how many leading blocks of the prompt it had cached. */
  | { readonly in: 'cached'; readonly request: number; readonly blocks: number }
  | { readonly in: 'token'; readonly request: number }
  /** The backend that was to compute its prompt alone has done so, or could not: the rest is the other one's. */
  | { readonly in: 'prefilled'; readonly request: number; readonly ok: boolean }
  /** The backend failed before a byte of its answer went to the client: the request is routed again. */
  | { readonly in: 'retry'; readonly request: number }
  | { readonly in: 'end'; readonly request: number; readonly how: EndKind; readonly outputTokens: number }
  /** The client of a request that waits for its turn has left. */
  | { readonly in: 'leave'; readonly request: number }
);

/** An input without its time. */
export type Untimed<T> = T extends { readonly atUs: number } ? Omit<T, 'atUs'> : never;
export type Tell = (input: Untimed<GatewayInput>) => void;

/** Verdicts of shadow policies, by the name under which each decides beside. */
export type ShadowVerdicts = Readonly<Record<string, string>>;
export type ShadowTargets = Readonly<Record<string, number>>;

export type GatewayOutput = { readonly atUs: number } & (
  | {
      readonly out: 'admission';
      readonly request: number;
      readonly verdict: 'admit' | 'reject' | 'delay';
      readonly reason?: string;
      readonly durationUs?: number;
      readonly shadows?: ShadowVerdicts;
    }
  | {
      readonly out: 'route';
      readonly request: number;
      readonly target: number;
      /** The backend that computes its prompt for the target; left out where that is the target itself. */
      readonly prefill?: number;
      readonly reason: string;
      /** Its priority: a higher score is more urgent; `rank` is the number for a server's scheduler, where lower is. */
      readonly score: number;
      readonly rank: number;
      /** Leading blocks that are believed to be cached there. */
      readonly expectedBlocks: number;
      /** Scores of the candidates, each with its number. */
      readonly scores?: readonly (readonly [instance: number, score: number])[];
      readonly filteredOut?: readonly (readonly [instance: number, filter: string])[];
      readonly shadows?: ShadowTargets;
    }
  /** No backend can take it, or it had its chance at all of them. */
  | { readonly out: 'unroutable'; readonly request: number }
  /** The queue turned it away or put it out, or it has waited there as long as it may. */
  | { readonly out: 'shed' | 'expired'; readonly request: number }
  /** A program of a bundle failed: the rule of its slot decided. */
  | {
      readonly out: 'fallback';
      readonly policy: string;
      readonly slot: string;
      readonly kind: string;
      readonly request: number;
    }
);

/** Words of keys as the text of a record. */
export function keysText(words: Uint32Array, keys: number): string {
  return Buffer.from(words.buffer, words.byteOffset, keys * 16).toString('base64');
}

/** Words of keys from the text of a record. */
export function keysOfText(text: string): Uint32Array {
  const bytes = Buffer.from(text, 'base64');
  const words = new Uint32Array(Math.floor(bytes.length / 4));
  for (let i = 0; i < words.length; i++) words[i] = bytes.readUInt32LE(4 * i);
  return words;
}
