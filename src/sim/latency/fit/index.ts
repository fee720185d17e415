/** Fitting models of time to measurements, and judging them. */

export { composedPrefillUs } from './composedPrefill.ts';
export {
  crossValidate,
  type Fold,
  fitEngine,
  kernelCoefficients,
  type ModelLookup,
  predictRecords,
  prepareRecords,
  type RecordPrediction,
} from './engineFit.ts';
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
} from './kernelFit.ts';
export { fitLinear, type LinearFit, nonNegativeLeastSquares } from './linearFit.ts';
export {
  averageStep,
  batchOf,
  formatStepRecords,
  parseEngineLog,
  parseRunSummaries,
  parseStepRecords,
  type RunSummary,
  type StepRecord,
} from './measured/stepRecords.ts';
export {
  type BatchLimits,
  type MeasuredRequest,
  parseMeasuredRequests,
  type RequestTimes,
  replayRequests,
} from './requestReplay.ts';
export { fitRun, type MeasuredRun, replayRun } from './runFit.ts';
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
