/** The door `tierkv/report`: what a result says to a person who decides, as one page. */

export {
  type BarsSection,
  type DistributionsSection,
  type Figure,
  type LinesSection,
  type PointsSection,
  type Report,
  type ReportColumn,
  type ReportOrigin,
  type ReportSection,
  type TableSection,
  type TextSection,
  type TimelineEvent,
  type TimelineLane,
  type TimelineRequest,
  type TimelineSection,
  type Unit,
  written,
} from './model.ts';
export { reportPage } from './page.ts';
export { requireReportTarget, writeReport } from './writeReport.ts';
