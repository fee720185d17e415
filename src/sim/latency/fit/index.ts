/** Fitting models of time to measurements, and judging them. */

export { composedPrefillUs } from './composed-prefill.ts';
export {
  crossValidate,
  type Fold,
  fitEngine,
  kernelCoefficients,
  type ModelLookup,
  predictRecords,
  prepareRecords,
  type RecordPrediction,
} from './engine-fit.ts';
export {
  type DecodeSample,
  type GemmSample,
  isWarmUp,
  type KernelTables,
  type PrefillSample,
  parseDecodeTable,
  parseGemmTable,
  parsePrefillTable,
  predictDecodeAttention,
  predictGemm,
  predictPrefillAttention,
  prefillTokenRange,
} from './kernel-fit.ts';
export { fitLinear, type LinearFit, nonNegativeLeastSquares } from './linear-fit.ts';
export {
  type BatchLimits,
  type MeasuredRequest,
  parseMeasuredRequests,
  type RequestTimes,
  replayRequests,
} from './request-replay.ts';
export { fitRun, type MeasuredRun, replayRun } from './run-fit.ts';
export {
  largePrefillTokens,
  type Prediction,
  type Regime,
  regimeOf,
  regimes,
  type Score,
  scoreOf,
  scoresBy,
} from './score.ts';
export {
  averageStep,
  batchOf,
  formatStepRecords,
  parseEngineLog,
  parseRunSummaries,
  parseStepRecords,
  type RunSummary,
  type StepRecord,
} from './step-records.ts';
