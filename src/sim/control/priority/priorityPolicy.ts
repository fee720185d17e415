/** The second stage: how urgent a request is, and what later stages should know of it. */

import type { Priority } from '../decisions.ts';
import type { NamedPolicy } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { RouterState } from '../routerState.ts';

export interface PriorityPolicy extends NamedPolicy {
  /** Deterministic; changes none of its arguments. */
  prioritise(request: RequestView, router: RouterState): Priority;
}
