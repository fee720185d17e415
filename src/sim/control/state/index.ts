/** What the router keeps: signals of instances, tenants, and windows of traffic. */

export { SignalBoard } from './signalBoard.ts';
export { TenantTable } from './tenantTable.ts';
export { TrafficHistory } from './trafficHistory.ts';
