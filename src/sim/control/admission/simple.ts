/** Admission rules that look at no instance: all, none, and a bucket of tokens. */

import { ADMIT, type AdmissionDecision, type Priority } from '../decisions.ts';
import { type PlainState, StatelessPolicy } from '../policy.ts';
import type { RequestView } from '../request.ts';
import type { RouterState } from '../routerState.ts';
import type { AdmissionPolicy } from './admissionPolicy.ts';

export class AlwaysAdmit extends StatelessPolicy implements AdmissionPolicy {
  readonly name: string = 'always-admit';
  decide(): AdmissionDecision {
    return ADMIT;
  }
}

export class RejectAll extends StatelessPolicy implements AdmissionPolicy {
  readonly name: string = 'reject-all';
  decide(): AdmissionDecision {
    return { verdict: 'reject', reason: 'reject-all' };
  }
}

/**
 * A bucket of tokens that starts full: a request takes as many as its prompt has. With `onEmpty: delay` a
 * request that finds too few comes again when enough have flowed in, if it can ever have them.
 */
export class TokenBucket implements AdmissionPolicy {
  readonly name: string = 'token-bucket';
  readonly #capacity: number;
  readonly #perSecond: number;
  readonly #delays: boolean;
  #tokens: number;
  #filledUs = 0;

  constructor(capacity: number, perSecond: number, delays: boolean) {
    this.#capacity = capacity;
    this.#perSecond = perSecond;
    this.#delays = delays;
    this.#tokens = capacity;
  }

  decide(request: RequestView, _priority: Priority, router: RouterState): AdmissionDecision {
    const elapsedUs = router.nowUs - this.#filledUs;
    if (elapsedUs > 0) {
      this.#tokens = Math.min(this.#capacity, this.#tokens + (elapsedUs * this.#perSecond) / 1e6);
      this.#filledUs = router.nowUs;
    }
    if (this.#tokens >= request.promptTokens) {
      this.#tokens -= request.promptTokens;
      return ADMIT;
    }
    const reason = 'too few tokens in the bucket';
    if (!this.#delays || request.promptTokens > this.#capacity) return { verdict: 'reject', reason };
    const missing = request.promptTokens - this.#tokens;
    return { verdict: 'delay', durationUs: Math.ceil((missing * 1e6) / this.#perSecond), reason };
  }

  snapshot(): PlainState {
    return { tokens: this.#tokens, filledUs: this.#filledUs };
  }

  restore(state: PlainState): void {
    // the state is what `snapshot` made
    const saved = state as { tokens: number; filledUs: number };
    this.#tokens = saved.tokens;
    this.#filledUs = saved.filledUs;
  }
}
