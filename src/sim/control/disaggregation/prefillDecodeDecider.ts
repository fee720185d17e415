/** Whether a request's prompt is computed on another instance than its output. */

import type { InstanceSnapshot } from '../instances.ts';
import type { NamedPolicy } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { RouterState } from '../routerState.ts';

export interface PrefillDecodeDecision {
  readonly disaggregate: boolean;
  readonly reason: string;
}

export interface PrefillDecodeDecider extends NamedPolicy {
  /** Whether it asks the router's observed view of caches. */
  readonly readsCaches: boolean;
  /** @param decode the instance that was chosen to decode */
  decide(request: RequestView, decode: InstanceSnapshot, router: RouterState): PrefillDecodeDecision;
}
