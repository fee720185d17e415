/** What became of a routed request, for policies that learn from it. */

import type { RequestView } from './request.ts';

export interface Outcome {
  readonly request: RequestView;
  /** Where it ended. */
  readonly instance: number;
  /** False for one that was lost, timed out, or could not be served. */
  readonly completed: boolean;
  readonly outputTokens: number;
  /** From arrival to the step that gave its first token, -1 where none did. */
  readonly ttftUs: number;
  /** From arrival to the step in which it ended. */
  readonly e2eUs: number;
  readonly nowUs: number;
}
