/**
 * Geometry: a unit of KV is a box over (layer, head, token), and everything about its bytes follows from
 * that.
 */

export {
  type Axis,
  type BoxShape,
  type BoxStrides,
  blockBox,
  boxBytes,
  boxShape,
  boxStrides,
  contains,
  intersect,
  type KVBox,
  requireBox,
  rowOffsetBytes,
  sameBox,
  split,
  tokenBox,
} from './box.ts';
export {
  blockBytesLimit,
  dtypeBytes,
  type KVDtype,
  type KVLayout,
  type KVLayoutConfig,
  kvLayout,
  layoutFingerprint,
  requireKVLayout,
  requireLayout,
} from './layout.ts';
export { choosePageBytes, type PageSize, type PageSizeOptions } from './pageSize.ts';
export {
  countRuns,
  type RunArray,
  valuesPerCopyRun,
  valuesPerRun,
  writeBlockRuns,
  writeCopyRuns,
  writeRuns,
} from './runs.ts';
export {
  type CoveringUnit,
  cover,
  Granularity,
  type GranularityName,
  granularityNames,
  type UnitConfig,
  type UnitSpec,
  unitAt,
  unitBox,
  unitCount,
  unitSpec,
} from './unit.ts';
