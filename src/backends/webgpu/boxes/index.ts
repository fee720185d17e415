/** Parts of slots: a box of what lies in each of many slots, packed on the device by kernels, or copied run by run. */

export type { BoxCall } from './boxCalls.ts';
export { Boxes } from './boxes.ts';
export { type BoxPathName, boxPathNames } from './boxPath.ts';
export { type BoxPlan, boxPlan } from './boxPlan.ts';
