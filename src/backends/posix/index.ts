/** System calls that Node lacks, or that do not end as they should. */

export { Advice, type Libc, loadLibc } from './libc.ts';
export { makeDirectories } from './makeDirectories.ts';
