/** What a simulation measured: rows of requests, distributions, and what is made of them. */

export { Histogram } from './histogram.ts';
export { RequestTable, Status, statusNames } from './requestTable.ts';
export * from './statistics.ts';
