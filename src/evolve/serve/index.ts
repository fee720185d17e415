/** The evaluator as frameworks see it: requests and answers as plain JSON, whatever carries them. */

export { type Answer, answerOf, combinedScore, type ScenarioAnswer } from './answer.ts';
export { bundleOfTexts, checkFrozen, type Texts } from './candidate.ts';
export { EvaluationService, type RequestId, type Response, type ServiceOptions } from './service.ts';
