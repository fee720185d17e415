/** The first stage: whether a request comes in, is turned away, or asks again later. */

import type { AdmissionDecision, Priority } from '../decisions.ts';
import type { ClusterState } from '../instances.ts';
import type { NamedPolicy } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { RouterState } from '../routerState.ts';

export interface AdmissionPolicy extends NamedPolicy {
  /** Changes none of its arguments. `priority` is the class's, as the priority stage will see it. */
  decide(
    request: RequestView,
    priority: Priority,
    router: RouterState,
    cluster: ClusterState,
  ): AdmissionDecision;
  /** An admitted request has ended. */
  ended?(request: RequestView, nowUs: number): void;
}
