/**
 * What the control plane may know of a request. The number of tokens that it will generate is not among it:
 * a policy that reads it would be an oracle.
 */

import type { BlockKeys } from '../../runtime/keys/index.ts';

export interface RequestView {
  /** Unique in the simulation, from 0 in order of arrival. */
  readonly number: number;
  readonly id: string;
  readonly tenantId: string;
  /** `critical`, `standard`, `batch`, `sheddable`, `background`, another name, or '' for none. */
  readonly sloClass: string;
  readonly model: string;
  /** LoRA adapter, '' for none. */
  readonly adapter: string;
  /** '' for none. */
  readonly sessionId: string;
  readonly arrivalUs: number;
  readonly promptTokens: number;
  /** Absolute, 0 for none. */
  readonly deadlineUs: number;
  /** Time to the first token that the request asks for in microseconds, 0 for none. */
  readonly sloTargetUs: number;
  /** Full blocks of the prompt. */
  readonly promptBlocks: number;
  /**
   * Keys of the blocks in order; the first `promptBlocks` of them are the prompt's, and policies read no
   * more. May be a getter that makes them when they are first asked for.
   */
  readonly keys: BlockKeys;
}
