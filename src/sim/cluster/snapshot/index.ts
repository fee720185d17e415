/** A run written down between two events, for others to go on from. */

export { restoreCluster, saveCluster } from './clusterState.ts';
export { RequestTape } from './requestTape.ts';
export { SimulationSnapshot, type SnapshotData, snapshotVersion } from './simulationSnapshot.ts';
