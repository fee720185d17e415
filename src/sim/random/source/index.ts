/**
 * The source of random words: Go's lagged Fibonacci generator with its seed table. Its register exists twice,
 * portably and in WebAssembly, with equal bits.
 */

export { LaggedFibonacciSource, type SourceState } from './laggedFibonacci.ts';
