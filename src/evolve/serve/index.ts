/** The evaluator as frameworks see it: requests and answers as plain JSON, whatever carries them. */

export { type Answer, answerOf, combinedScore, type ScenarioAnswer } from './answer.ts';
export { bundleOfTexts, checkFrozen, type Texts } from './candidate.ts';
export type { RequestId } from './requests.ts';
export { EvaluationService, type Response, type ServiceOptions } from './service.ts';
