/** One request of a Mooncake-format trace, as a command hands it on. */
export interface TraceRequest {
  readonly timestampMs: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /**
   * One id per block of the input, the last block possibly partial. An equal id means an equal whole prefix.
   */
  readonly hashIds: Float64Array;
  /** Number of the line in the file, from 1. */
  readonly line: number;
}
