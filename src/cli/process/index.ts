/**
 * How a command ends: by an error in the words of the command line, by a stop from outside, and what goes at
 * exit.
 */

export { refuseEmptyValues } from './emptyValues.ts';
export { type Ending, endingOf, withStack } from './errorFunnel.ts';
export { Interrupted, interruptible } from './interrupt.ts';
export { inOptionNames, withOptionNames } from './optionNames.ts';
export { inStandardInputsWords, useStandardStreams } from './standardStreams.ts';
export { type TemporaryDirectory, temporaryDirectory } from './temporaryDirectory.ts';
