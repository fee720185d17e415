/** System calls that Node lacks. */

export { Advice, type Libc, loadLibc } from './libc.ts';
