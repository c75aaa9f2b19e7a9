"""Trackers: finished runs in TensorBoard or MLflow. Off unless asked for, and never shown private diagnostics.

What a run computes on the way (losses, gradient norms, accuracy on private labels) is not covered by its epsilon, so no
tracker is called while a run goes on. When it has ended, a tracker gets one `Entry`: settings, plan, certificate.
"""
