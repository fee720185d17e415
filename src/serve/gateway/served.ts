/**
 * The gateway as its HTTP side sees it: its parts, and for each request a number and the decisions on it as they come.
 */

import type { BackendPool } from './backends.ts';
import type { GatewayLimits } from './config.ts';
import type { PromptMemory } from './diagnosis.ts';
import type { GatewayMeasures } from './gatewayMetrics.ts';
import type { PromptCutter } from './prompts.ts';
import type { GatewayOutput, Tell } from './records.ts';
import type { StatusSource } from './status.ts';
import type { TracedRequest } from './trace.ts';

/** Decisions on one request, in order. */
export class Inbox {
  readonly #waiting: GatewayOutput[] = [];
  #wake: ((output: GatewayOutput | undefined) => void) | undefined;
  #isShut = false;

  put(output: GatewayOutput): void {
    const wake = this.#wake;
    this.#wake = undefined;
    if (wake !== undefined) wake(output);
    else this.#waiting.push(output);
  }

  /** No more decisions are waited for. */
  shut(): void {
    this.#isShut = true;
    this.#wake?.(undefined);
  }

  /** The next one; undefined once it is shut. */
  async next(): Promise<GatewayOutput | undefined> {
    if (this.#isShut) return undefined;
    const first = this.#waiting.shift();
    if (first !== undefined) return first;
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }
}

/** The part of a gateway that its server needs. */
export interface ServedGateway extends StatusSource {
  readonly pool: BackendPool;
  readonly cutter: PromptCutter;
  readonly limits: GatewayLimits;
  /** Tenants by API key; undefined where all clients are one tenant. */
  readonly tenants: ReadonlyMap<string, string> | undefined;
  /** Names of headers that go on to backends beside the usual ones. */
  readonly forwardHeaders: ReadonlySet<string>;
  /** Whether backends are told the rank of each request. */
  readonly sendsPriority: boolean;
  readonly tell: Tell;
  readonly wantsKeys: boolean;
  /** Recent prompts; undefined where clients are not told why one was missed. */
  readonly prompts: PromptMemory | undefined;
  readonly measures: GatewayMeasures;
  register(): { readonly number: number; readonly inbox: Inbox };
  forget(number: number): void;
  nowUs(): number;
  retryAfterS(): number;
  record(record: TracedRequest): void;
}
