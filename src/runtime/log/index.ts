/**
 * The decision log: what a manager was given and what it decided, as text, and the same run again from it.
 */

export {
  DecisionOp,
  type DecisionSink,
  decisionOpNames,
  InputOp,
  inputOpNames,
  type SchedulerHead,
} from './decisionSink.ts';
export { LogReader, type RecordedInput } from './logReader.ts';
export { type LogOutput, LogWriter } from './logWriter.ts';
export { LogReplayer, type ReplayListener, replayLog } from './replayer.ts';
export type { RecordedSchedulerInput } from './schedulerInput.ts';
