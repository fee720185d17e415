/** The door `tierkv/dashboard`: one page that shows what a runtime does, or did. */

export {
  type Dashboard,
  type DashboardOptions,
  type DashboardServer,
  dashboard,
  type FollowOptions,
  followedLogDashboard,
  type ListenOptions,
  logDashboard,
  serveDashboard,
} from './dashboard.ts';
export type {
  DashboardFrame,
  DashboardHead,
  FrameBlock,
  FrameLink,
  FrameRequest,
  FrameTier,
} from './frames.ts';
export { framesOfLog, type LogFrames } from './logFrames.ts';
